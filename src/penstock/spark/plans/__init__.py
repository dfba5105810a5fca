"""What a DataFrame is made of: Spark's analysed plan, read as values."""
