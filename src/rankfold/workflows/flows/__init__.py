"""Workflows: from a YAML file to finished stages.

flow_file     a workflow as people write it: models of its YAML, and its JSON Schema
stage_models  models of its stages as people write them: one for each method
graph         its stages in order: references, sweeps, cycles
stage_tasks   from a stage to a task, on existing or future results
importing     a stage that imports a matrix
plan          which stages would run, and why
cost          cost of a stage: passes, bytes, memory, tasks, files, time
space         check that all results and scratch fit on the disk
table         that plan as a table
run           runs the stages that are not done
destinations  copies of results in files of AnnData or netCDF, tables, and pictures
retention     earlier results that are kept in addition to the newest
record        the record of a workflow in its folder of results
"""
