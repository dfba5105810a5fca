"""One module per file format; `base` says what each of them gives."""
