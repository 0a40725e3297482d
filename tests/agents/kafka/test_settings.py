"""Client settings: Kafka's own names in, aiokafka's arguments out, and no secret anywhere."""

from __future__ import annotations

import pytest

from headgate.agents.kafka.settings import ClientSettings, mask
from headgate.core.errors import EnvironmentFault, SettingError
from headgate.core.secrets import MASK
from headgate.core.settings import is_secret


def parse(*pairs):
    return ClientSettings.parse("a:1, b:2", pairs)


def test_names_of_java_and_of_librdkafka_mean_the_same():
    """`fetch.max.wait.ms` and `fetch.wait.max.ms`; both reach the consumer, and the producer does not see them."""
    for name in ("fetch.max.wait.ms", "fetch.wait.max.ms"):
        assert parse(f"{name}=7").consumer()["fetch_max_wait_ms"] == 7
        assert "fetch_max_wait_ms" not in parse(f"{name}=7").producer()
    assert parse().admin() == {"bootstrap_servers": ["a:1", "b:2"]}
    assert parse("client.id=x").consumer(client_id="y")["client_id"] == "y"


def test_an_unknown_setting_is_refused_with_the_nearest_name():
    """A typing error must not start a worker with the default."""
    with pytest.raises(SettingError, match=r"did you mean 'sasl\.mechanism'"):
        parse("sasl.mechanim=PLAIN")
    with pytest.raises(SettingError, match="unknown"):
        parse("quite.something.else=1")


@pytest.mark.parametrize(
    "pair",
    ["enable.idempotence=false", "acks=1", "isolation.level=read_uncommitted", "group.id=g", "transactional.id=t"],
)
def test_what_the_guarantees_rest_on_cannot_be_set(pair):
    """Exactly once with acks=1 is none."""
    with pytest.raises(SettingError, match="cannot be set"):
        parse(pair)


@pytest.mark.parametrize(
    "pair", ["fetch.max.bytes=many", "check.crcs=maybe", "security.protocol=TSL", "sasl.mechanism=MAGIC", "novalue"]
)
def test_values_of_the_wrong_kind_are_refused(pair):
    """Said when it is parsed, not when a client starts."""
    with pytest.raises(SettingError):
        parse(pair)


def test_no_broker_is_refused():
    """With the way to give one."""
    with pytest.raises(SettingError, match="-b HOST"):
        ClientSettings.parse(" ")


@pytest.mark.parametrize(
    "typed",
    ["127.0.0.1:39556x", "b:0", "b:70000", "b:", ":9092", "PLAINTEXT://b:9092", "[::1", "[::1]9092", "a:1,b c:2"],
)
def test_an_address_that_is_none_is_refused_before_any_client_sees_it(typed):
    """Whoever slips by one key reads one line, and not the forty of a client that cannot read a number."""
    with pytest.raises(SettingError, match="is not a broker address"):
        ClientSettings(typed)


@pytest.mark.parametrize("typed", ["b", "b:9092", "a:1, b:65535,", "[::1]:9092", "[::1]", "::1", "10.0.0.7:9094"])
def test_addresses_that_a_client_takes_are_taken(typed):
    assert ClientSettings(typed).bootstrap == typed


def test_sasl_from_librdkafka_and_from_java():
    """User and password, or Java's login line."""
    plain = parse(
        "security.protocol=SASL_PLAINTEXT", "sasl.mechanism=scram-sha-512", "sasl.username=ann", "sasl.password=s3cret"
    )
    java = parse(
        "security.protocol=SASL_PLAINTEXT",
        "sasl.mechanism=SCRAM-SHA-512",
        'sasl.jaas.config=org.apache.kafka.ScramLoginModule required username="ann" password="s3cret";',
    )
    for settings in (plain, java):
        given = settings.producer()
        assert (given["sasl_mechanism"], given["sasl_plain_username"], given["sasl_plain_password"]) == (
            "SCRAM-SHA-512",
            "ann",
            "s3cret",
        )
    with pytest.raises(SettingError, match="needs a user and a password"):
        parse("security.protocol=SASL_SSL", "sasl.mechanism=PLAIN")


def test_secrets_are_masked_everywhere():
    """A planted password must not be found in what people see."""
    settings = parse(
        "security.protocol=SASL_PLAINTEXT",
        "sasl.username=ann",
        "sasl.password=planted",
        "ssl.key.password=planted",
        "ssl.key.pem=planted",
    )
    assert "planted" not in repr(settings)
    assert "planted" not in str(settings.shown())
    assert settings.shown()["sasl.password"] == MASK
    assert settings.shown()["sasl.username"] == "ann"
    with pytest.raises(SettingError) as error:
        ClientSettings.parse("b:1", ["sasl.password planted"])
    assert "planted" not in str(error.value)
    for wrong in ("Bearer planted", "https://planted@b:9092", "--password planted"):
        with pytest.raises(SettingError) as error:
            ClientSettings.parse("b:1", [wrong])
        assert "planted" not in str(error.value)
    with pytest.raises(SettingError, match="not a broker address") as error:
        ClientSettings("SASL_SSL://ann:planted@b:9092")
    assert "planted" not in str(error.value)
    assert mask({"client.id": "x;token=planted"}) == {"client.id": "x;token=***"}
    assert [is_secret(n) for n in ("sasl.jaas.config", "ssl.keystore.password", "client.id")] == [True, True, False]


def test_tls_files_that_are_not_there_and_stores_that_are_not_pem(tmp_path):
    """What to do stands in the error."""
    with pytest.raises(EnvironmentFault, match="TLS files"):
        parse("security.protocol=SSL", "ssl.ca.location=/nowhere.pem").consumer()
    with pytest.raises(SettingError, match=r"keytool .* trust.jks .*\n.* -nokeys -out trust.pem"):
        parse("security.protocol=SSL", "ssl.truststore.location=trust.jks")
    with pytest.raises(SettingError, match=r"openssl pkcs12 -in me.p12 -out me.pem") as wrong:
        parse("security.protocol=SSL", "ssl.keystore.location=me.p12")
    assert "keytool" not in str(wrong.value)
    (tmp_path / "store").write_bytes(b"\xfe\xed\xfe\xed and more")
    with pytest.raises(SettingError, match="keytool"):
        parse("security.protocol=SSL", f"ssl.truststore.location={tmp_path}/store").consumer()


def test_an_encrypted_key_needs_its_password_and_no_one_is_asked(tmp_path):
    """The file is what `openssl pkcs12` writes: key and certificate, one after the other."""
    trustme = pytest.importorskip("trustme")
    from cryptography.hazmat.primitives import serialization as s

    own = trustme.CA().issue_cert("me")
    key = s.load_pem_private_key(own.private_key_pem.bytes(), None)
    sealed = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.BestAvailableEncryption(b"hunter2"))
    (tmp_path / "me.pem").write_bytes(sealed + own.cert_chain_pems[0].bytes())
    given = ("security.protocol=SSL", "ssl.keystore.type=PEM", f"ssl.keystore.location={tmp_path}/me.pem")
    parse(*given, "ssl.key.password=hunter2").consumer()
    with pytest.raises(EnvironmentFault, match=r"needs ssl\.key\.password"):
        parse(*given).consumer()


def test_certificates_in_the_text_may_stand_in_one_line():
    """As in files of Java clients."""
    trustme = pytest.importorskip("trustme")
    pem = trustme.CA().cert_pem.bytes().decode()
    for text in (pem, pem.replace("\n", "\\n"), pem.replace("\n", " ")):
        context = parse("security.protocol=SSL", f"ssl.truststore.certificates={text}").consumer()["ssl_context"]
        assert context.cert_store_stats()["x509_ca"] == 1


def test_tls_checks_names_unless_told_otherwise():
    """As Java: an empty algorithm switches the check of host names off."""
    assert parse("security.protocol=SSL").consumer()["ssl_context"].check_hostname
    assert (
        not parse("security.protocol=SSL", "ssl.endpoint.identification.algorithm=")
        .consumer()["ssl_context"]
        .check_hostname
    )
    unchecked = parse("security.protocol=SSL", "enable.ssl.certificate.verification=false").consumer()["ssl_context"]
    assert unchecked.verify_mode == 0


def test_pem_text_and_pem_files_are_the_same(tmp_path):
    """A certificate given inline, with \\n as text, as in environment variables."""
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    ca = authority.cert_pem.bytes().decode()
    key, chain = certificate.private_key_pem.bytes().decode(), certificate.cert_chain_pems[0].bytes().decode()
    (tmp_path / "ca.pem").write_text(ca)
    (tmp_path / "key.pem").write_text(key)
    (tmp_path / "chain.pem").write_text(chain)
    for pairs in (
        [
            f"ssl.ca.location={tmp_path}/ca.pem",
            f"ssl.certificate.location={tmp_path}/chain.pem",
            f"ssl.key.location={tmp_path}/key.pem",
        ],
        [
            f"ssl.truststore.certificates={ca}",
            f"ssl.keystore.certificate.chain={chain}",
            "ssl.keystore.key=" + key.replace("\n", "\\n"),
        ],
    ):
        context = parse("security.protocol=SSL", *pairs).consumer()["ssl_context"]
        assert context.cert_store_stats()["x509_ca"] >= 1
