"""The settings of a consumer: one table of names, types and defaults, and one frozen value made of them."""

from zkconsumer.config.consumer_config import ConsumerConfig

__all__ = ["ConsumerConfig"]
