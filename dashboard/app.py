"""The dashboard's script, which `longdoc dashboard` gives to Streamlit."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import streamlit as st

from benchmarks.store import LOCAL, SHIPPED
from dashboard.views import accuracy, choose, cost, fidelity, glance, live, loads, try_it
from models.bundle import ROOT

_ICON = Path(__file__).with_name("icon.png")


def main() -> None:
    """Draw the page that the address names."""
    st.set_page_config(page_title="Longdoc", page_icon=str(_ICON), layout="wide")
    args = _arguments()
    st.session_state["stores"] = (SHIPPED, args.store)
    st.session_state["bundles"] = args.bundles
    page = st.navigation(
        [
            st.Page(
                glance.draw, title="At a glance", icon=":material/visibility:", url_path="glance",
                default=True,
            ),
            st.Page(
                cost.draw, title="Cost by length", icon=":material/show_chart:", url_path="cost"
            ),
            st.Page(choose.draw, title="Choose", icon=":material/checklist:", url_path="choose"),
            st.Page(
                accuracy.draw, title="Accuracy against cost", icon=":material/target:",
                url_path="accuracy",
            ),
            st.Page(
                fidelity.draw, title="Fidelity", icon=":material/compare:", url_path="fidelity"
            ),
            st.Page(loads.draw, title="Load tests", icon=":material/speed:", url_path="loads"),
            st.Page(live.draw, title="Live", icon=":material/sensors:", url_path="live"),
            st.Page(try_it.draw, title="Try it", icon=":material/edit_note:", url_path="try"),
        ]
    )  # fmt: skip
    page.run()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", type=Path, default=LOCAL)
    parser.add_argument("--bundles", type=Path, default=ROOT)
    return parser.parse_args(sys.argv[1:])


if __name__ == "__main__":
    main()
