"""A stored index: rows sorted by partition, and neighbors of other rows among them.

arguments   types, defaults and limits of the arguments
request     its parameters, checked
layout      number of partitions, and cuts of the stored rows; radii of partitions, and the partitions that
            they rule out
build       the task that makes an index; sorts rows by partition into the result, and finds the radius of
            each partition
search      neighbors of queries in the partitions that they probe (are compared with)
truth       true neighbors of a few queries, in one read of the index
queries     the task that answers queries: the recall of a sample decides the number of probes; an existing
            index
"""
