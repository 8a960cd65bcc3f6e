"""What a person writes and reads. Imports every layer below.

cli           the command line, one command per method
progress      a live bar on a terminal, plain lines without one
demo          patches of two photographs, from pixels to pictures of their components
report        one self-contained page
"""
