"""Files: what is written whole or not at all, and work that goes on where it was stopped.

``archive`` is the format of saved panels, moments and models; ``atomic`` writes beside and renames; ``checkpoint``
keeps the pieces of a fit, ``resume`` those of other work; ``provenance`` says with which versions a result was made.
What a file of a given kind holds is not decided here, but where panels, moments and models live. This room may import
``errors`` and ``arrays``, and no other room.
"""
