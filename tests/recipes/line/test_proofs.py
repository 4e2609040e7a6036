"""Proofs that a ticket's own client has written its data."""

import hashlib
import re

from recipes.line.proofs import MOST_PROOFS, Proofs, is_proven


def test_each_version_has_a_proof_of_its_own() -> None:
    proofs = Proofs("a secret", MOST_PROOFS)
    name = f"_c_{proofs.id}-lock-0000000001"
    given = [proofs.proof(version) for version in range(1, MOST_PROOFS + 1)]
    assert len(set(given)) == MOST_PROOFS
    for version, proof in enumerate(given, start=1):
        assert proof is not None
        assert is_proven(name, version, proof)
        assert not is_proven(name, version - 1, proof)
        assert not is_proven(name, version + 1, proof)
    assert proofs.proof(MOST_PROOFS + 1) is None


def test_the_id_has_the_form_of_a_uuid_and_comes_from_the_secret() -> None:
    """Other clients look for names of this form."""
    ids = {Proofs(f"secret {number}", 1).id for number in range(100)}
    assert len(ids) == 100
    form = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
    assert all(form.fullmatch(id_) for id_ in ids)
    assert Proofs("secret 1", 1).id in ids


def test_clients_of_all_versions_of_this_package_make_the_same_proofs() -> None:
    """They wait in one line, and believe each other."""
    proofs = Proofs("a secret", 300)
    assert MOST_PROOFS == 300
    assert proofs.id == "df0f0252-6001-47c9-be03-273d27cf0edc"
    assert proofs.proof(1) == "24efecbf8b55ae1c659a53736f12c83f60e9281a46ec8d5098096b32dd348300"
    assert proofs.proof(300) == hashlib.sha256(b"a secret").hexdigest()
    assert proofs.proof(301) is None
    assert is_proven(
        "_c_df0f0252-6001-47c9-be03-273d27cf0edc-lock-0000000001", 300, hashlib.sha256(b"a secret").hexdigest()
    )


def test_more_versions_than_there_are_proofs_are_not_believed() -> None:
    """To hash a proof of a very high version would take long."""
    proofs = Proofs("a secret", 301)
    name = f"_c_{proofs.id}-lock-0000000001"
    for version, is_believed in ((300, True), (301, False)):
        assert is_proven(name, version, proofs.proof(version) or "") == is_believed


def test_what_is_not_a_proof_is_refused() -> None:
    proofs = Proofs("a secret", 1)
    name = f"_c_{proofs.id}-lock-0000000001"
    proof = proofs.proof(1)
    assert proof is not None
    assert is_proven(name, 1, proof)
    assert not is_proven(name, 1, proof[:-2])
    assert not is_proven(name, 1, "0" * 64)
    assert not is_proven(f"_c_{proofs.id}", 1, proof)
    assert not is_proven(f"x{name}", 1, proof)
    assert not is_proven(name, -1, proof)
