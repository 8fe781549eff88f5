"""All trained nets of these benchmarks."""

from trained_nets.cleaning import NETS as CLEANING
from trained_nets.hearing import NETS as HEARING
from trained_nets.language import NETS as LANGUAGE
from trained_nets.more import NETS as MORE
from trained_nets.rating import NETS as RATING
from trained_nets.unseen import NETS as UNSEEN
from trained_nets.vision import NETS as VISION

NETS = (*VISION, *HEARING, *CLEANING, *RATING, *LANGUAGE, *UNSEEN, *MORE)
