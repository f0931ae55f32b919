"""How a report looks: one sheet for light and dark, wide and narrow, screen and paper; colours by what they are for.

Every text colour has a contrast of at least 4.5 to its ground, every line of a picture at least 3 (``tests`` hold
that). Rules are under ``.onesided``, so that a section shown in a notebook changes nothing else there.
"""

from __future__ import annotations

COLOURS = {  # light, dark
    "ground": ("#ffffff", "#14181d"),
    "panel": ("#f4f6f8", "#1d2229"),
    "ink": ("#1b1f24", "#e8ebef"),
    "muted": ("#525c66", "#aab3bd"),
    "rule": ("#868f99", "#78828d"),
    "hair": ("#d3d9df", "#363d46"),
    "first": ("#0b62a8", "#6fb4f2"),
    "second": ("#a84a12", "#f2a36e"),
}
LIGHT, DARK = ({name: colours[k] for name, colours in COLOURS.items()} for k in (0, 1))


def _variables(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())


# Where a table goes on beyond the edge of what scrolls, the edge is shaded: covers that move with the table hide the
# shades, which do not, at its ends.
_SHADED = (
    "background:linear-gradient(90deg,var(--ground) 40%,transparent) 0 0/2rem 100% no-repeat local,"
    "linear-gradient(270deg,var(--ground) 40%,transparent) 100% 0/2rem 100% no-repeat local,"
    "linear-gradient(90deg,var(--hair),transparent) 0 0/.8rem 100% no-repeat,"
    "linear-gradient(270deg,var(--hair),transparent) 100% 0/.8rem 100% no-repeat"
)

CSS = f"""
.onesided{{{_variables(LIGHT)}color-scheme:light}}
@media (prefers-color-scheme:dark){{.onesided{{{_variables(DARK)}color-scheme:dark}}}}
.onesided{{background:var(--ground);color:var(--ink);font:1rem/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,"Noto Sans",sans-serif;padding:1rem 1.25rem;box-sizing:border-box;overflow-wrap:break-word}}
.onesided *{{box-sizing:border-box}}
.onesided header,.onesided section,.onesided footer,.onesided nav{{max-width:68rem;margin:0 auto}}
.onesided section{{margin-top:2.5rem}}
.onesided h1{{font-size:1.7rem;line-height:1.2;margin:.5rem 0}}
.onesided h2{{font-size:1.3rem;line-height:1.25;margin:0 0 .5rem;padding-top:1rem;border-top:2px solid var(--ink)}}
.onesided h3{{font-size:1.05rem;margin:1.75rem 0 .35rem}}
.onesided h4{{font-size:1rem;margin:0 0 .35rem}}
.onesided h4 span{{font-weight:400;font-size:.92rem}}
.onesided p,.onesided ul.said{{max-width:44rem;margin:.5rem 0}}
.onesided ul.said{{padding-left:1.2rem}}
.onesided nav a{{display:inline-block;padding:.4rem .9rem .4rem 0}}
.onesided a{{color:var(--first)}}
.onesided a:focus-visible,.onesided .wide:focus-visible,.onesided summary:focus-visible{{
outline:2px solid var(--first);outline-offset:2px}}
.onesided .muted,.onesided figcaption,.onesided dl.defined,.onesided footer{{color:var(--muted)}}
.onesided .pictures{{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));
gap:1.25rem 2.5rem}}
.onesided .pictures{{align-items:start}}
.onesided .pictures>*{{min-width:0}}
.onesided figure{{margin:.75rem 0;max-width:34rem;min-width:0}}
.onesided figure svg{{display:block;width:100%;height:auto;color:var(--ink)}}
.onesided svg *{{stroke-linejoin:round;stroke-linecap:butt}}
.onesided figcaption{{font-size:.92rem;margin-top:.35rem}}
.onesided .wide{{overflow-x:auto;max-width:100%;margin:0 0 .6rem;{_SHADED}}}
.onesided table{{border-collapse:collapse;font-size:.95rem;font-variant-numeric:tabular-nums}}
.onesided p.caption{{color:var(--muted);font-size:.92rem;margin:.6rem 0 .2rem}}
.onesided th,.onesided td{{padding:.3rem 1.1rem .3rem 0;border-bottom:1px solid var(--hair);text-align:left;
vertical-align:top;font-weight:400}}
.onesided thead th{{color:var(--muted);border-bottom:1px solid var(--rule)}}
.onesided tr.chosen th,.onesided tr.chosen td,.onesided b{{font-weight:650}}
.onesided table.list th[scope=row]{{white-space:nowrap}}
@media screen{{.onesided table.list td,.onesided table.list th{{white-space:nowrap}}}}
.onesided td.n,.onesided th.n{{text-align:right;white-space:nowrap}}
.onesided .cards{{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,20rem),1fr));
gap:1rem;margin:.75rem 0}}
.onesided .card{{background:var(--panel);border-radius:.4rem;padding:.8rem 1rem;min-width:0}}
.onesided .ends{{display:grid;grid-template-columns:1fr 1fr;gap:.25rem 1.25rem}}
.onesided .ends.stacked{{grid-template-columns:1fr}}
.onesided .ends p{{margin:0;color:var(--muted);font-size:.9rem}}
.onesided .ends ul{{list-style:none;margin:0;padding:0;font-size:.92rem;min-width:0}}
.onesided .ends li{{display:flex;justify-content:space-between;gap:.6rem;padding:.1rem 0;overflow-wrap:anywhere}}
.onesided .ends .v{{color:var(--muted);white-space:nowrap;font-variant-numeric:tabular-nums}}
.onesided ol.key{{margin:0;padding-left:2.2rem;font-size:.92rem;overflow-wrap:anywhere}}
.onesided details{{margin:.6rem 0;font-size:.92rem}}
.onesided summary{{cursor:pointer;color:var(--muted);padding:.35rem 0}}
.onesided dl.defined{{margin:.2rem 0;columns:2 22rem;column-gap:2.5rem}}
.onesided dl.defined div{{break-inside:avoid;padding-bottom:.45rem}}
.onesided dl.defined dt{{color:var(--ink)}}
.onesided dl.defined dd{{margin:0}}
@media (max-width:30rem){{.onesided{{padding:.75rem .9rem}}.onesided h1{{font-size:1.4rem}}
.onesided .ends{{grid-template-columns:1fr}}.onesided td,.onesided th{{padding-right:.8rem}}}}
@media print{{.onesided{{{_variables(LIGHT)}color-scheme:light;padding:0;font-size:10pt}}
.onesided nav{{display:none}}.onesided figure{{max-width:25rem}}
.onesided figure,.onesided .card,.onesided tr{{break-inside:avoid}}
.onesided h2,.onesided h3{{break-after:avoid}}.onesided .wide{{overflow:visible}}
.onesided details>*{{display:block}}.onesided details::details-content{{content-visibility:visible;height:auto}}}}
"""
