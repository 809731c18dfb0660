"""A mesh on real machines: peers that talk to their neighbours, with no server and no broker.

The machines of methods without a server run unchanged. The journals are authoritative: after a crash, a
restart replays the journal and sends the same signed bytes again. Reports are authenticated by their
signatures; pinned certificates decide who may connect.

``files`` handles the folders, ``node`` is the fold, ``wire`` moves bytes over gRPC, ``run`` runs one peer,
``check`` diagnoses problems with connections, ``verification`` checks a peer's folder, and ``demo`` runs a
whole mesh on one computer. Requires ``bestarm[mesh]``.
"""
