"""YAML with line numbers, for profiles and workflows.

yaml_file    settings in a file: every mistake is reported in one line with its place; the mistakes of YAML
             itself, in plain words
"""
