"""Pages that open without a network, from what runs leave behind.

page      what pages and pictures share: facts, tiles, light and dark
run_page  the page of a workflow, or of one run
history   what the folder of a run tells of itself: attempts, segments, workers
measures  planned beside measured, and the machine's limits
speedup   the laws of Amdahl and Gustafson, fitted
tables    the same numbers as text
charts    figures of runs
"""
