"""What each release wrote to disk and store, byte for byte: every later release has to read it."""
