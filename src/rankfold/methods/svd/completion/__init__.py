"""What is missing in a matrix, completed by a model of low rank before a solver begins: ``missing="em"``.

low_rank_model    the model, and what sums over all rows make of it
completion_pass   one pass: what every row tells
acceleration      models that take several passes at once
first_model       what a sample of rows tells
warm              compiled loops of these
completion        passes until what is missing changes no more, in numbers and in work
"""
