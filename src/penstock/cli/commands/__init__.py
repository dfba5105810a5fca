"""One module for each command, each with an attribute ``command``."""
