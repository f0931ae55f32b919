"""Files: what is written whole or not at all, and work that goes on where it was stopped.

``archive`` is the format of saved panels, moments and models; ``atomic`` writes beside and renames; ``checkpoint`` keeps
the pieces of a fit, ``resume`` those of other work; ``provenance`` says with which versions a result was made. What is
in a file of a given kind is no matter of this room: panels, moments and models say so where they live. It may import
``errors``, and no other room.
"""
