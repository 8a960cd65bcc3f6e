"""What a person writes and reads. Imports every layer below.

cli           the command line, one command per method
flow          a workflow as people write it: models of its YAML, and its JSON Schema
graph         its stages in order: references, sweeps, circles
stages        from a stage to a task, of what is there or of what is to come
importing     a stage that imports
flow_plan     which stages would run, why, and what they take
flow_run      run them, or what is left of them
flow_record   what the folder of results knows of it
flow_status   how far it is
wording       options of commands as keys of a file; tables
library       workflows to begin with
progress      a live bar on a terminal, plain lines without one
demo          patches of two photographs, from pixels to pictures of their components
report        one self-contained page
"""
