"""Server certificates that follow their files."""

from __future__ import annotations

from typing import Any

import grpc
import structlog

from workspaced_server.config import ConfigError, TlsConfig

_log = structlog.stdlib.get_logger("workspaced.tls")
_Stamp = tuple[tuple[int, int], ...]


def credentials(tls: TlsConfig) -> grpc.ServerCredentials:
    """Credentials that follow their files: a renewed certificate is used from the next connection on.

    Raises ConfigError when the files cannot be used now.
    """
    stamp, configuration = _read_tls(tls)
    latest = {"stamp": stamp}

    def fetch() -> Any:
        try:
            if _stamp(tls) == latest["stamp"]:
                return None
            latest["stamp"], renewed = _read_tls(tls)
        except (ConfigError, OSError) as error:
            _log.error("certificates not read again; the earlier ones stay in use", cause=str(error))
            return None
        return renewed

    return grpc.dynamic_ssl_server_credentials(
        configuration, fetch, require_client_authentication=tls.client_ca is not None
    )


def _stamp(tls: TlsConfig) -> _Stamp:
    paths = [path for path in (tls.certificate, tls.key, tls.client_ca) if path is not None]
    stats = [path.stat() for path in paths]
    return tuple((found.st_mtime_ns, found.st_ino) for found in stats)


def _read_tls(tls: TlsConfig) -> tuple[_Stamp, grpc.ServerCertificateConfiguration]:
    assert tls.certificate is not None
    assert tls.key is not None
    try:
        stamp = _stamp(tls)
        chain, key = tls.certificate.read_bytes(), tls.key.read_bytes()
        authority = tls.client_ca.read_bytes() if tls.client_ca is not None else None
    except OSError as error:
        raise ConfigError(f"cannot read {error.filename}: {error.strerror}") from error
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        certificate = x509.load_pem_x509_certificates(chain)[0]
        if load_pem_private_key(key, None).public_key() != certificate.public_key():
            raise ConfigError("tls.key does not belong to tls.certificate")
        if authority is not None:
            x509.load_pem_x509_certificates(authority)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"tls: a file does not hold what it should, in PEM: {error}") from error
    return stamp, grpc.ssl_server_certificate_configuration([(key, chain)], authority)
