"""What a person writes and reads. Imports every layer below.

cli           the command line, one command per method
commands/     what each does between its options and the library
flows/        workflows: from a YAML file to stages that are done
operations/   submit, follow, end and repeat them
reports/      pages that open without a network
library/      workflows to begin with
options       options that commands share        wording   options as keys of a file; tables
progress      a live bar on a terminal, plain lines without one
reporting     how a command ends: messages, exit codes, signals
demo          patches of two photographs, from pixels to pictures of their components
patches       those patches
"""
