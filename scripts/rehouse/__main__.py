"""``python -m scripts.rehouse``: runs plans on the checkout in which it stands."""

import argparse
import sys

from scripts.rehouse.checkout import Checkout
from scripts.rehouse.patches import main_folder, renew_patches, run_plans, transplant
from scripts.rehouse.plan import RefusedPlanError, plan_files


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.rehouse", description="Moves and joins modules by plans.")
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help="plans to run (default: all)")
    parser.add_argument("--dry", action="store_true", help="print what would be, write nothing")
    parser.add_argument("--force", action="store_true", help="go on in spite of circles and collisions")
    parser.add_argument("--patches", metavar="BEFORE", help="make the patches of tests/additions again")
    parser.add_argument("--transplant", nargs=2, metavar=("BEFORE", "AFTER"), help="take this branch over")
    options = parser.parse_args()
    checkout, files = Checkout(main_folder()), plan_files(options.rooms)
    try:
        if options.patches:
            print("\n".join(str(patch) for patch in renew_patches(checkout, options.patches, files)))
        elif options.transplant:
            before, after = options.transplant
            print(transplant(checkout, before, after, files))
        else:
            run_plans(checkout, files, dry=options.dry, force=options.force)
    except RefusedPlanError as refusal:
        print(f"refused, nothing of this plan is written:\n{refusal}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
