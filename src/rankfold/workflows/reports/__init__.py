"""Pages that open without a network, made from records of runs.

page      common parts of pages and pictures: facts, tiles, light and dark themes
run_page  the page of a workflow, or of one run
history   the history of a run from its folder: attempts, segments, workers
measures  planned and measured cost, compared with the limits of the machine; the laws of Amdahl and
          Gustafson, fitted
tables    planned and measured cost as tables of text
charts    figures of runs
"""
