"""Earlier results of a stage, which stay beside the newest.

earlier     which there are; one more, and fewer
duplicate   a folder under a second name, without a second copy of its files
"""
