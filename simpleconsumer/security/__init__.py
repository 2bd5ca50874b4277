"""TLS and SASL of connections to brokers."""

from simpleconsumer.security.security import Security
from simpleconsumer.security.wrong_setting import WrongSecuritySetting

__all__ = ["Security", "WrongSecuritySetting"]
