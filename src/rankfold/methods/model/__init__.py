"""What is done with a result.

arguments               what may be asked of what is done with a result
model                   a stored result as factors
summary                 samples as what can be merged
transform               new rows in the components of a result
transform_pass          its folds
sparse_transform_pass   its fold over what a sparse matrix stores
update                  components of more samples
kept_rows               its fold over few rows
check                   residuals of a result against its matrix
sparse_check_pass       its fold over what a sparse matrix stores
reconstruct             the matrix out of its factors
"""
