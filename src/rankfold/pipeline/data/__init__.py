"""Matrices: protocols, views, selections, names and types, wherever a matrix is stored.

source            the protocol of a matrix, and that of an array of more axes
grid              the cut of an axis into native chunks
dtypes            shapes and types that a matrix may have; conversion to another type without silent loss
view              a matrix seen as long side x short side, whichever of them the rows are
stacked           an array of more axes as a matrix
selection         some rows and columns of a matrix, as a matrix
index_selection   selected indices along an axis: slices, masks, lists; indices as runs (first, count,
                  step), as facts of a result keep them
missing_columns   a matrix without columns that are NaN throughout
missing_rows      a matrix without rows that are NaN throughout
cf_attributes     rules that decode stored values, from the attributes of an array; attributes that describe
                  values: units, names, calendars
decoded           an array of decoded values
allele_counts     calls of alleles as counts, by sample
alleles           names of variants, with the allele that is counted
named_objects     names of rows and columns of frames, Series and DataArrays
names             names of rows and columns, and how to find them among those of another matrix
longitudes        labels that are degrees of longitude
pandas_index      an index of pandas, rebuilt from its names as text
real_parts        a complex matrix as a real one, of its real and imaginary parts
origin            the position of an element in the array that a matrix was made from
describe          a description of a store, for people
"""
