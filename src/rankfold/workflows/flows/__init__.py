"""Workflows: from a YAML file to stages that are done.

flow_file     a workflow as people write it: models of its YAML, and its JSON Schema
stage_models  its stages as people write them: a model for each method
graph         its stages in order: references, sweeps, circles
stage_tasks   from a stage to a task, of what is there or of what is to come
importing     a stage that imports
plan          which stages would run, and why
cost          what a stage takes: passes, bytes, memory, tasks, files, time
space         whether all results and scratch fit on the disk
table         that plan for people
run           run them, or what is left of them
destinations  results that go on into files of AnnData or netCDF, tables, and pictures
retention     earlier results, which stay beside the newest
record        what the folder of results knows of it
"""
