"""Where metrics go besides the files of the run directory. One file for each tool, which imports the tool's package; it
is imported where that tool is chosen."""
