"""Plotly figures from numbers: pure functions of plain lists, and the only place with colours.

Every function takes numbers and returns a `Figure` whose title states the takeaway: the title given, or one computed
from the numbers drawn. Colour is never the only cue: patterns, dashes, symbols and text repeat it.
Knows nothing about models, sessions or files.
"""

from specdec_lib.figures.ablation import ratios, round_split, shares
from specdec_lib.figures.board import board
from specdec_lib.figures.canvas_grid import canvas_grid, solved_by_forwards
from specdec_lib.figures.continuous import densities, image_grid, patch_acceptance
from specdec_lib.figures.distributions import acceptance, distributions
from specdec_lib.figures.draft_length import draft_lengths, regrets, speed_by_parameter, stopping_points
from specdec_lib.figures.early_exit_grid import early_exit_grid
from specdec_lib.figures.hierarchy import nested_rounds, predicted_measured, stack_path
from specdec_lib.figures.lattice import lattice
from specdec_lib.figures.lengths import draft_lengths_by_round, lengths_by_rule
from specdec_lib.figures.pipeline import pipeline
from specdec_lib.figures.retrieval import candidates
from specdec_lib.figures.schedule_map import schedule_map
from specdec_lib.figures.schedule_timeline import schedule_timeline
from specdec_lib.figures.speed import by_family, speedups, time_split, tokens_per_forward
from specdec_lib.figures.sweep import parallel_settings, parameter_contour, sensitivity_bars, settings_front
from specdec_lib.figures.theme import PALETTE
from specdec_lib.figures.theory import conditional_acceptance, cost_curve, curves, speed_map, tokens_by_depth
from specdec_lib.figures.timeline import match_lengths, rounds, signal, sources
from specdec_lib.figures.tradeoff import tradeoff
from specdec_lib.figures.training import depth_weights, gains, training_curves
from specdec_lib.figures.tree import tree
from specdec_lib.figures.trigger import histogram, precision_recall, trigger
from specdec_lib.figures.waterfall import break_even_plane, waterfall

__all__ = ["PALETTE", "acceptance", "board", "break_even_plane", "by_family", "candidates", "canvas_grid",
           "conditional_acceptance", "cost_curve", "curves", "densities", "depth_weights", "distributions",
           "draft_lengths", "draft_lengths_by_round", "early_exit_grid", "gains", "histogram", "image_grid", "lattice",
           "lengths_by_rule", "match_lengths", "nested_rounds", "parallel_settings", "parameter_contour",
           "patch_acceptance", "pipeline", "precision_recall", "predicted_measured", "ratios", "regrets", "round_split",
           "rounds", "schedule_map", "schedule_timeline", "sensitivity_bars", "settings_front", "shares", "signal",
           "solved_by_forwards", "sources", "speed_by_parameter", "speed_map", "speedups", "stack_path",
           "stopping_points", "time_split", "tokens_by_depth", "tokens_per_forward", "tradeoff", "training_curves",
           "tree", "trigger", "waterfall"]
