"""The command line, workflows in YAML files, and reports for people. Imports every other layer of the
library.

commands     what each command does between its options and the library
flows        workflows: from a YAML file to finished stages
operations   submit, follow, end and repeat workflows
monitoring   metrics and one-line summaries of runs that nobody watches
reports      HTML pages about runs, which open without a network
library      example workflows

cli          the command line
options      options that commands share
messages     messages that name options as keys of a workflow file; aligned tables
results      final lines that commands and stages print
reporting    how a command ends: messages, exit codes, signals
demo         patches of two photographs, from pixels to pictures of their components; the matrix of these
             patches
"""
