"""YAML with line numbers, for profiles and workflows.

yaml_file    settings in a file: every mistake is one line that says where
yaml_words   the mistakes of YAML itself, in plain words
"""
