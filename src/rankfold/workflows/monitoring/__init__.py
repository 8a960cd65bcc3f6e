"""What a workflow tells of itself to those who do not watch it: numbers to be scraped, a line of news.

outcome       facts of a stage that is done
metrics       which numbers there are, and the file of them
openmetrics   numbers as text that Prometheus reads
news          a run in one line
"""
