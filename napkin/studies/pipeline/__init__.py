"""From a streamed diagram to a pipelined algorithm (arXiv 2412.03317, section 5).

`looped` lays a kernel out as a pseudocode diagram, `colours` says at which level each array lies,
`setting` fixes its sizes, `fit` and `clocks` what it holds and how long it takes, `overlap` what is
left when tensor cores and arithmetic run at the same time.
"""
