"""What a person writes and reads. Imports every layer below.

commands     what each command does between its options and the library
flows        workflows: from a YAML file to stages that are done
operations   submit, follow, end and repeat them
monitoring   metrics and news for those who do not watch
reports      pages that open without a network
library      workflows to begin with

cli          the command line
options      options that commands share
wording      options as keys of a file; tables
results      how commands and stages close
reporting    how a command ends: messages, exit codes, signals
demo         patches of two photographs, from pixels to pictures of their components
patches      those patches
"""
