"""A stored index: rows sorted by partition, and neighbors of other rows among them.

arguments   types, defaults and limits of the arguments
request     its parameters, checked
layout      number of partitions, and cuts of what is stored
balls       radii of partitions, and the partitions that they rule out
sort_rows   writes rows of all runs into the result, by partition, and finds the radius of each
build       the task that makes an index
stored      an existing index
search      neighbors of a panel of queries in the partitions that they probe
truth       true neighbors of a few queries, in one read of the index
queries     the task that answers queries: the recall of a sample decides the number of probes
warm        compiles loops by running each once
"""
