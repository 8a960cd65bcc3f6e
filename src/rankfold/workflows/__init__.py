"""Files and commands that a person writes, and texts that they read. Imports every layer below.

commands     what each command does between its options and the library
flows        workflows: from a YAML file to finished stages
operations   submit, follow, end and repeat them
monitoring   metrics and news of runs that nobody watches
reports      pages that open without a network
library      example workflows

cli          the command line
options      options that commands share
wording      options as keys of a file; tables
results      final lines of commands and stages
reporting    how a command ends: messages, exit codes, signals
demo         patches of two photographs, from pixels to pictures of their components
patches      those patches
"""
