"""Layouts of graphs of neighbors in few dimensions, as UMAP makes them.

arguments   types, defaults and limits of the arguments
request     parameters of a layout, checked; the curve that forces follow from
edges       the edges of a graph that pull, in memory
start       where vertices begin, and rows that are added to a layout
apart       where components begin, side by side
density     forces that keep apart what is so in the data
layout      epochs that move all vertices, a group after the other
work        in this process, or by workers that exchange positions
placement   new rows in a layout that stays
losses      how well a layout keeps what is joined together, and what is not apart
umap        the task, and its plan
warm        compiled loops, run once
"""
