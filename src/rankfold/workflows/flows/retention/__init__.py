"""Earlier results of a stage, kept in addition to the newest.

earlier     list them, add one, remove the oldest
duplicate   a folder under a second name, without a second copy of its files
"""
