"""The capture formats AACO reads; a folder for each tool, a file for each format."""
