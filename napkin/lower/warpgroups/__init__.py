"""Groups of a loop program side by side on the warpgroups of one multiprocessor, in Gluon."""
