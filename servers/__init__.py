"""Real servers for tests and benchmarks: installed where that is possible, started on loopback, ended."""
