"""Points of few dimensions, all of them in memory, in a tree.

coordinates   rows of a matrix as points: periodic boxes, the sphere
points        the tree, read and arranged by the leading process; points whose neighbors are wanted, panel
              by panel
nearest       writes nearest points into the chunks of a result
search        plan and work of a search for the nearest
plan          cost of a tree, and the condition for using one
"""
