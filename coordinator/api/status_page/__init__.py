"""The status page at /, and the files of /docs."""
