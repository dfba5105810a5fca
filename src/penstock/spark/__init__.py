"""Everything that knows how Spark is started: Java, the class archive, sessions."""
