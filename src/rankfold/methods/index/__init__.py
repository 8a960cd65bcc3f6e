"""A stored index: rows sorted by partition, and neighbors of other rows among them.

arguments   what an index may be asked
request     its parameters, checked
layout      how many partitions, and how what is stored is cut
balls       how far partitions reach, and what that rules out
sort_rows   rows of all runs into the result, by partition, and how far each partition reaches
build       an index made: its plan, and its work
stored      an index opened
search      neighbors of a panel of queries in the partitions that they probe
truth       true neighbors of a few queries, in one read of the index
queries     queries answered: probes chosen by the recall of a sample, the plan, and the work
warm        compiled loops, run once
"""
