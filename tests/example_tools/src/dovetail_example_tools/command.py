"""`dovetail hello`: greet the backends that are installed."""

from dovetail.cli import PlainCommand, plugins_of, print_json, say


def add_arguments(parser):
    parser.add_argument("who", nargs="?", help="greet one alone")


def run(args):
    from dovetail_example_tools.greeting import hello  # imported when the command runs, not when help lists it

    names = [args.who] if args.who else list(plugins_of(args).registry.backend)
    if args.json:
        print_json({"greetings": list(map(hello, names))})
    else:
        say(*map(hello, names))
    return 0


HELLO = PlainCommand(add_arguments, run)
