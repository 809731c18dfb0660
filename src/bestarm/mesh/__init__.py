"""A mesh on real machines: peers that talk to their neighbours, with no server and no broker.

The machine of ``bestarm.protocol.peer`` runs unchanged. Journals are the truth: whatever dies, a restart
replays the journal and sends the same signed bytes again. A report counts by its signature; who may connect
is decided by pinned certificates.

``files`` knows the folders, ``node`` is the fold, ``wire`` moves bytes over gRPC, ``run`` drives one peer,
``check`` looks for what would keep it from its neighbours, ``demo`` shows all of it on one computer. Needs
``bestarm[mesh]``.
"""
