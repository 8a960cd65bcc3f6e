"""Workflows: from a YAML file to finished stages.

flow_file     models of the YAML file of a workflow, and its JSON Schema
stage_models  models of the stages in that file: one for each method
graph         stages in the order they run: references, parameter sweeps, cycles
stage_tasks   makes the task (call to plan and run) of a stage, on existing or future results
importing     a stage that imports a matrix
plan          which stages would run, and why; checks that all results and temporary files fit on the disk
cost          cost of a stage: passes, bytes, memory, tasks, files, time
table         the plan and the cost as a table
run           runs the stages that are not done
destinations  copies of results in files of AnnData or netCDF, tables, and pictures
retention     earlier results that are kept in addition to the newest
record        the record of a workflow in its folder of results
"""
