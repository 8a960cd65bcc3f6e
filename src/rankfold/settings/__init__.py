"""YAML with line numbers, for profiles and workflows.

yaml_file    reads a file of settings; reports every mistake in one line with file and line, those of YAML
             syntax in plain words
"""
