"""Writes what run.py measured as a table and as a plot.

The plot is plain SVG, one small panel for each figure with a scale of its own: the figures differ
by orders of magnitude, and each panel is about one comparison only.
"""

import html

# Name in results.json, title, unit, format, whether more is better.
FIGURES = [
    ("authentications_per_second", "Authentications", "/s", "{:,.0f}", True),
    ("returns_per_second_kept", "Returns, connection kept", "/s", "{:,.0f}", True),
    ("returns_per_second_fresh", "Returns, fresh connection each", "/s", "{:,.0f}", True),
    ("publish_to_last_delivery_ms", "Publish to last delivery", "ms", "{:,.0f}", False),
    ("job_p50_ms", "test.ping complete, p50", "ms", "{:,.0f}", False),
    ("job_p99_ms", "test.ping complete, p99", "ms", "{:,.0f}", False),
    ("tcp_returns_per_second_kept", "TCP: returns, connection kept", "/s", "{:,.0f}", True),
    ("tcp_returns_per_second_fresh", "… fresh connection each", "/s", "{:,.0f}", True),
    ("tcp_publish_to_last_delivery_ms", "… publish to last delivery", "ms", "{:,.0f}", False),
    ("tcp_job_p50_ms", "… test.ping complete, p50", "ms", "{:,.0f}", False),
    ("tcp_job_p99_ms", "… test.ping complete, p99", "ms", "{:,.0f}", False),
    ("open_jobs_1_returns_per_second", "Returns with 1 job open", "/s", "{:,.0f}", True),
    ("open_jobs_10_returns_per_second", "… 10 jobs", "/s", "{:,.0f}", True),
    ("open_jobs_100_returns_per_second", "… 100 jobs", "/s", "{:,.0f}", True),
    ("cpu_seconds_per_1000_returns", "Master CPU per 1,000 returns", "s", "{:.3f}", False),
    (
        "cpu_seconds_per_1000_returns_mirrored",
        "… with the job cache on disk caught up",
        "s",
        "{:.3f}",
        False,
    ),
    ("pss_megabytes", "Master memory (PSS)", "MB", "{:,.0f}", False),
    ("pillars_per_second", "Pillars rendered (Jinja, 50 keys)", "/s", "{:,.0f}", True),
    ("pillar_p99_ms", "Pillar, 16 asked for at once, p99", "ms", "{:,.0f}", False),
    ("cpu_ms_per_pillar", "Master CPU per pillar", "ms", "{:,.2f}", False),
    ("files_small_per_second", "cp.get_dir of small files, one minion", "/s", "{:,.0f}", True),
    ("files_small_together_per_second", "… eight minions at once", "/s", "{:,.0f}", True),
    (
        "files_large_megabytes_per_second",
        "cp.get_dir of a large file, one minion",
        "MB/s",
        "{:,.0f}",
        True,
    ),
    (
        "files_large_together_megabytes_per_second",
        "… four minions at once",
        "MB/s",
        "{:,.0f}",
        True,
    ),
]


# Of storm.py: what a restart under 5,000 minions and twenty long jobs come to.
FIGURES += [
    ("storm_all_served_seconds", "kill -9: all minions served after", "s", "{:,.1f}", False),
    ("storm_sign_ins", "… authentications for it", "", "{:,.0f}", False),
    ("storm_publish_p99_ms", "… publish meanwhile, p99", "ms", "{:,.0f}", False),
    ("storm_job_lost", "… returns of the running job lost", "", "{:,.0f}", False),
    ("watch_find_job_publishes", "20 long jobs: find_job publishes", "", "{:,.0f}", False),
    ("watch_wrong_verdicts", "… wrongly “did not return”", "", "{:,.0f}", False),
]

# Of reactor.py: 20,000 events a second that match one rule.
FIGURES += [
    ("reactor_events_per_second", "Reactor storm: events taken of 20,000/s", "/s", "{:,.0f}", True),
    ("reactor_bus_p99_ms", "… until other subscribers have them, p99", "ms", "{:,.1f}", False),
    ("reactor_reactions_per_second", "… reactions meanwhile", "/s", "{:,.0f}", True),
    ("reactor_pss_growth_megabytes", "… memory grown by", "MB", "{:,.0f}", False),
    ("reactor_unaccounted", "… a minute later neither done nor counted", "", "{:,.0f}", False),
]

# Of cli.py: whole processes, stock's command and ours with the same master.
FIGURES += [
    ("cli_ping_ms", "Command line: salt one test.ping", "ms", "{:,.1f}", False),
    ("cli_ping_megabytes", "… peak memory", "MB", "{:,.1f}", False),
    ("cli_ping_stock_ms", "… of a stock minion", "ms", "{:,.1f}", False),
    ("cli_all_ms", "salt '*' test.ping, 1,000 minions", "ms", "{:,.0f}", False),
    ("cli_all_megabytes", "… peak memory", "MB", "{:,.1f}", False),
    ("cli_many_ms", "… 9,000 minions", "ms", "{:,.0f}", False),
    ("cli_many_megabytes", "… peak memory", "MB", "{:,.1f}", False),
    ("cli_keys_ms", "salt-key -L, 100,000 keys", "ms", "{:,.0f}", False),
    ("cli_keys_megabytes", "… peak memory", "MB", "{:,.1f}", False),
    ("cli_jobs_ms", "salt-run jobs.list_jobs, 100,000 jobs", "ms", "{:,.0f}", False),
    ("cli_jobs_megabytes", "… peak memory", "MB", "{:,.1f}", False),
    ("cli_help_ms", "salt --help", "ms", "{:,.1f}", False),
    ("cli_help_megabytes", "… peak memory", "MB", "{:,.1f}", False),
]

# Of api.py: the HTTP API, stock's salt-api with stock's master, and ours.
FIGURES += [
    ("api_logins_per_second", "HTTP API, 16 clients: log-ins", "/s", "{:,.1f}", True),
    ("api_pings_per_second", "… local test.ping", "/s", "{:,.1f}", True),
    ("api_pings_p99_ms", "… test.ping, p99", "ms", "{:,.0f}", False),
    ("api_runners_per_second", "… runner calls", "/s", "{:,.1f}", True),
    ("api_streams_opened", "500 event streams wanted: opened", "", "{:,.0f}", True),
    ("api_stream_events_lost", "… events lost, at 1,000/s in each", "", "{:,.0f}", False),
    ("api_stream_megabytes", "… memory grown by", "MB", "{:,.0f}", False),
    ("api_stream_bus_p99_ms", "… until other subscribers have them, p99", "ms", "{:,.1f}", False),
]

# Of sql.py: job caches in SQL databases that share the cores, ours by its follower, stock's by its returner.
for schema, database in (("pgjsonb", "PostgreSQL"), ("mysql", "MariaDB")):
    FIGURES += [
        (f"sql_{schema}_returns_per_second", f"Returns with {schema} in {database}", "/s", "{:,.0f}", True),
        (f"sql_{schema}_lookup_p99_ms", "… jobs.lookup_jid of 1,000,000, p99", "ms", "{:,.0f}", False),
        (f"sql_{schema}_list_p99_ms", "… jobs.list_jobs", "ms", "{:,.0f}", False),
    ]


def figures(results):
    """All figures that both masters have; those of the fleets are named after their sizes."""
    masters = results["masters"].values()
    found = list(FIGURES)
    for fleet in next(iter(masters))["fleets"]:
        titles = {"p50": f"Target among {int(fleet):,} minions, p50", "p99": "… p99"}
        for name, title in titles.items():
            found.append((f"target_{fleet}_{name}_ms", title, "ms", "{:,.1f}", False))
    return [figure for figure in found if all(figure[0] in master for master in masters)]


def shown(master, key, unit, form):
    """A value with its unit; one that was not waited for is at least this."""
    more_than = "> " if key in master["capped"] else ""
    return f"{more_than}{form.format(master[key])} {unit}".strip()


COLOURS = {"stock": "#9aa5b1", "saltern": "#1f7a5c"}


def names(results):
    return {"stock": f"salt-master {results['stock']}", "saltern": "saltern"}


def describe(results):
    machine, site = results["machine"], results["site"]
    minions = results["masters"]["saltern"]["minions"]
    return (
        f"{minions:,} minions and their load on the same machine as the master: "
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, "
        f"Linux {machine['kernel']}, {machine['date']}. "
        f"`cp.get_dir` is of {site['small_files']:,} files of 1 to 20 KB, or of one of "
        f"{site['megabytes']:,} MB. A target is compound and means about ten minions that the "
        "master has in its cache; the time is that of the answer to `publish`."
        + describe_scrapes(results["masters"]["saltern"].get("scrapes", {}))
        + describe_commands(results)
        + describe_followers(results)
    )


# Prometheus asks so often by default, in seconds.
SCRAPE_INTERVAL = 15


def describe_scrapes(scrapes):
    """What Prometheus costs our master, for each number of minions."""
    if not scrapes:
        return ""
    costs = []
    for minions, cost in scrapes.items():
        share = cost["cpu_ms"] / (SCRAPE_INTERVAL * 1000)
        costs.append(
            f"with {int(minions):,} minions {cost['cpu_ms']:.1f} ms of processor time for "
            f"{cost['series']:,} series, {share:.3%} of a worker's"
        )
    return f" A scrape every {SCRAPE_INTERVAL} s costs " + "; ".join(costs) + "."


def describe_commands(results):
    """What the rows of the command line are, and what only ours has."""
    if "cli_ping_ms" not in results["masters"]["saltern"]:
        return ""
    text = (
        " Command lines are whole processes from start to end, stock's and ours with the same master "
        "of ours and native minions; stock's own reads the jobs from the job cache on disk."
    )
    own = results.get("cli_machine", results["machine"])
    if own["cpu"] != results["machine"]["cpu"]:
        text += f" They are of another machine: {own['cpu']}, {own['date']}."
    ours = results["masters"]["saltern"]
    if "cli_many_ms" in ours and "cli_many_ms" not in results["masters"]["stock"]:
        text += (
            " Stock's command gave up on 9,000 minions; ours needed "
            f"{ours['cli_many_ms']:,.0f} ms and {ours['cli_many_megabytes']:.1f} MB."
        )
    if (load := results.get("cli_load", 0)) > results["machine"]["cores"]:
        text += f" The machine was busy with other work meanwhile: {load:.0f} processes waited to run."
    if found := results.get("inventory"):
        # Results of earlier runs lack it.
        none = found.get("no_last_job_ms")
        without = f" ({none:.0f} ms where none is among the last {found['returns']:,} returns)" if none else ""
        text += (
            f" `saltern minions` lists {found['minions']:,} minions with grains in "
            f"{found['grains_ms']:.0f} ms, and with the last job of each in "
            f"{found['last_job_ms']:.0f} ms{without}; asked at once after the master's start, when it reads "
            f"all cached grains, in {found['first_seconds']:.1f} s. The completion of an id takes "
            f"{found['complete_ids_ms']:.0f} ms, of a function "
            f"{found['complete_functions_ms']:.0f} ms."
        )
    return text


def describe_followers(results):
    """What a follower costs our returns, and how fast it catches up."""
    ours, texts = results["masters"]["saltern"], []
    for schema in ("pgjsonb", "mysql"):
        rates = [f"sql_{schema}_{name}_per_second" for name in ("without", "returns", "down", "catching_up")]
        if all(name in ours for name in rates):
            without, up, down, catching_up = (ours[name] for name in rates)
            texts.append(
                f" Our master takes {without:,.0f} returns a second without {schema}, {up:,.0f} with it, "
                f"{down:,.0f} while its server is down and {catching_up:,.0f} while it catches up, by "
                f"{ours[f'sql_{schema}_catch_up_rows_per_second']:,.0f} rows a second when nothing else comes."
            )
    return "".join(texts)


def write_markdown(results, path):
    stock, ours = results["masters"]["stock"], results["masters"]["saltern"]
    lines = [
        describe(results),
        "",
        f"| | {names(results)['stock']} | saltern | factor |",
        "| --- | ---: | ---: | ---: |",
    ]
    for key, title, unit, form, more_is_better in figures(results):
        high, low = (ours[key], stock[key]) if more_is_better else (stock[key], ours[key])
        more_than = "> " if key in stock["capped"] and key not in ours["capped"] else ""
        factor = f"{more_than}{high / low:,.1f} ×" if low else "–"
        cells = [shown(master, key, unit, form) for master in (stock, ours)]
        lines.append(f"| {title} | {cells[0]} | {cells[1]} | {factor} |")
    path.write_text("\n".join(lines) + "\n")


BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


# What a stranger reads first, by the titles of the table, and under which titles there; everything
# else stands in docs/performance.md.
HIGHLIGHTS = {
    "Returns, connection kept": "Returns",
    "Authentications": "Authentications",
    "Publish to last delivery": "Publish to last delivery",
    "test.ping complete, p99": "test.ping complete, p99",
    "Master CPU per 1,000 returns": "Master CPU per 1,000 returns",
    "Master memory (PSS)": "Master memory (PSS)",
    "Pillars rendered (Jinja, 50 keys)": "Pillars rendered",
    "kill -9: all minions served after": "kill -9: all 5,000 minions served after",
    "… wrongly “did not return”": "Minions of 20 long jobs wrongly “did not return”",
    "Target among 10,000 minions, p50": "Target among 10,000 minions, p50",
}


def write_pages(markdown, root, has_storm=False):
    """Puts the table and the plots into docs/performance.md, and the highlights into the README."""
    plots = ["![The figures of the table as bars](../tests/bench/results.svg)"]
    if has_storm:
        title = "Minions served after the master was killed, over time"
        plots.append(f"![{title}](../tests/bench/storm.svg)")
    put_between_marks(root / "docs" / "performance.md", "\n\n".join([markdown.strip(), *plots]))
    put_between_marks(root / "README.md", highlights(markdown))


def highlights(markdown):
    """The head of the table, and of its rows those of HIGHLIGHTS."""
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    chosen = []
    for row in rows[2:]:
        title = row.split("|")[1].strip()
        if title in HIGHLIGHTS:
            chosen.append(row.replace(title, HIGHLIGHTS[title], 1))
    return "\n".join(rows[:2] + chosen)


def put_between_marks(page, content):
    """Replaces what stands between the two marks of a page."""
    text = page.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if begin and end:
        page.write_text(f"{before}{BEGIN}\n{content}\n{END}{after}")


def write_svg(results, path):
    columns, width, height, margin = 2, 420, 92, 24
    chosen = figures(results)
    rows = -(-len(chosen) // columns)
    top = 56
    total_width = columns * width + margin
    total_height = top + rows * height + margin
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total_width}" height="{total_height}" '
        f'viewBox="0 0 {total_width} {total_height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{total_width}" height="{total_height}" fill="white"/>',
    ]
    x = margin
    for kind, name in names(results).items():
        out.append(f'<rect x="{x}" y="16" width="12" height="12" fill="{COLOURS[kind]}"/>')
        out.append(f'<text x="{x + 18}" y="26" fill="#222">{name}</text>')
        x += 200
    machine = results["machine"]
    out.append(
        f'<text x="{margin}" y="46" fill="#666" font-size="11">{machine["cpu"]}, '
        f'{machine["cores"]} cores, {machine["date"]}</text>'
    )
    for number, figure in enumerate(chosen):
        left = margin + (number % columns) * width
        out += panel(results, figure, left, top + (number // columns) * height)
    out.append("</svg>")
    path.write_text("\n".join(out) + "\n")


def panel(results, figure, left, top):
    key, title, unit, form, more_is_better = figure
    longest = 240
    values = {kind: results["masters"][kind][key] for kind in ("stock", "saltern")}
    scale = longest / max(max(values.values()), 1e-9)
    hint = "more is better" if more_is_better else "less is better"
    out = [
        f'<text x="{left}" y="{top + 22}" fill="#222" font-weight="bold">{title}</text>',
        f'<text x="{left + 396}" y="{top + 22}" fill="#888" font-size="10" '
        f'text-anchor="end">{hint}</text>',
    ]
    for row, (kind, value) in enumerate(values.items()):
        y = top + 32 + row * 22
        bar = max(value * scale, 1)
        out.append(
            f'<rect x="{left}" y="{y}" width="{bar:.1f}" height="16" fill="{COLOURS[kind]}"/>'
        )
        out.append(
            f'<text x="{left + bar + 6:.1f}" y="{y + 12}" fill="#222">'
            f"{html.escape(shown(results['masters'][kind], key, unit, form))}</text>"
        )
    return out


def write_storm_svg(results, path):
    """How many minions were served so many seconds after the master was killed, one line each."""
    storm = results["storm"]
    width, height, left, top = 800, 300, 70, 70
    minions = storm["minions"]
    ends = [storm["curves"][kind][-1][0] for kind in COLOURS if storm["curves"][kind]]
    longest = max([*ends, 10]) * 1.05

    def place(seconds, count):
        return left + width * seconds / longest, top + height * (1 - count / minions)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 150}" '
        f'height="{top + height + 60}" font-family="sans-serif" font-size="12">',
        f'<rect width="{left + width + 150}" height="{top + height + 60}" fill="white"/>',
        f'<text x="{left}" y="26" fill="#222" font-weight="bold">Minions served again after '
        f"the master was killed and started, of {minions:,}</text>",
        f'<text x="{left}" y="46" fill="#666" font-size="11">{results["machine"]["cpu"]}, '
        f'{results["machine"]["cores"]} cores, {results["machine"]["date"]}; the minions on the '
        "same machine</text>",
    ]
    for share in (0, 0.25, 0.5, 0.75, 1):
        x, y = place(0, share * minions)
        out.append(f'<line x1="{x}" y1="{y}" x2="{x + width}" y2="{y}" stroke="#e4e7eb"/>')
        out.append(
            f'<text x="{x - 8}" y="{y + 4}" fill="#666" text-anchor="end">'
            f"{share * minions:,.0f}</text>"
        )
    step = next(step for step in (1, 2, 5, 10, 20, 50) if longest / step <= 12)
    for number in range(int(longest / step) + 1):
        x, y = place(number * step, 0)
        out.append(
            f'<text x="{x}" y="{y + 20}" fill="#666" text-anchor="middle">{number * step} s</text>'
        )
    label = None
    for kind, name in names(results).items():
        points = storm["curves"][kind]
        x, y = place(longest, points[-1][1] if points else 0)
        # Two lines that end side by side have their names one below the other.
        label = y if label is None or abs(y - label) > 34 else label + 34
        out += storm_line(points, name, COLOURS[kind], place, (longest, x, label))
    out.append("</svg>")
    path.write_text("\n".join(out) + "\n")


def storm_line(points, name, colour, place, end_of_line):
    """A step at each point, and what it came to at its end."""
    longest, x, y = end_of_line
    path, count = [place(0, 0)], 0
    for seconds, served in points:
        path += [place(seconds, count), place(seconds, served)]
        count = served
    end = points[-1][0] if points else 0
    path.append(place(longest, count))
    corners = " ".join(f"{across:.1f},{down:.1f}" for across, down in path)
    return [
        f'<polyline points="{corners}" fill="none" stroke="{colour}" stroke-width="2.5"/>',
        f'<text x="{x + 6:.0f}" y="{y - 2:.0f}" fill="{colour}" font-weight="bold">{name}</text>',
        f'<text x="{x + 6:.0f}" y="{y + 14:.0f}" fill="{colour}">{count:,} in {end:.1f} s</text>',
    ]


def write_soak_svg(samples, series, slopes, machine, path):
    """The series of a soak below one another, each from zero, with the kills of the master."""
    width, height, left, top = 800, 90, 70, 70
    begin, end = samples[0]["seconds"], samples[-1]["seconds"]
    kills = [one["seconds"] for last, one in zip(samples, samples[1:]) if last["life"] != one["life"]]
    whole = top + len(series) * (height + 45) + 20
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 30}" height="{whole}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{left + width + 30}" height="{whole}" fill="white"/>',
        f'<text x="{left}" y="26" fill="#222" font-weight="bold">Everything on for '
        f"{(end - begin) / 60:.0f} minutes; the master is killed with -9 at the red lines</text>",
        f'<text x="{left}" y="46" fill="#666" font-size="11">{machine["cpu"]}, {machine["cores"]} cores, '
        f'{machine["date"]}; minions, clients and PostgreSQL on the same machine</text>',
    ]
    for number, (name, (title, unit, share, _)) in enumerate(series.items()):
        points = [(one["seconds"], one[name] * share) for one in samples if one[name] is not None]
        most = max(value for _, value in points) * 1.1 or 1
        down = top + number * (height + 45) + 20

        def place(point, down=down, most=most):
            across = left + width * (point[0] - begin) / (end - begin or 1)
            return across, down + height * (1 - point[1] / most)

        slope = slopes[name]
        out += soak_frame(place, (begin, end, most), kills)
        out.append(
            f'<text x="{left}" y="{down - 8}" fill="#222">{title}: {slope["per_hour"]:+.2f} ± '
            f'{slope["error"]:.2f} {unit}/h</text>'
        )
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, points))
        out.append(f'<polyline points="{corners}" fill="none" stroke="{COLOURS["saltern"]}" stroke-width="1.5"/>')
    out.append("</svg>")
    path.write_text("\n".join(out) + "\n")


def soak_frame(place, ends, kills):
    """Zero and the most of a series, minutes, and a line at each kill."""
    begin, end, most = ends
    out = []
    for value in (0, most):
        x, y = place((begin, value))
        far, _ = place((end, value))
        out.append(f'<line x1="{x}" y1="{y}" x2="{far}" y2="{y}" stroke="#e4e7eb"/>')
        out.append(f'<text x="{x - 8}" y="{y + 4}" fill="#666" text-anchor="end">{value:,.0f}</text>')
    for minute in (0, 0.25, 0.5, 0.75, 1):
        x, y = place((begin + minute * (end - begin), 0))
        out.append(
            f'<text x="{x}" y="{y + 15}" fill="#666" font-size="10" text-anchor="middle">'
            f"{minute * (end - begin) / 60:.0f} min</text>"
        )
    for kill in kills:
        x, y = place((kill, 0))
        out.append(f'<line x1="{x}" y1="{y}" x2="{x}" y2="{place((kill, most))[1]}" stroke="#c0392b" stroke-dasharray="3"/>')
    return out
