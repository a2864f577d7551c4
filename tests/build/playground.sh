#!/usr/bin/env bash
# proves: make playground gives one HTML file below 1 MB that asks for nothing else; in Chromium it starts, for each header its
# numbers are those of a native run with the same settings, each control changes a line, the link holds the settings, a missed promise is
# red, and nothing is wider than the page at 400 and at 1200 pixels, light and dark
set -u
. "$(dirname "$0")/../lib.sh"
failed=0
out=$PWD/build/playground
page=$out/playground.html
native=build/examples/playground
rm -rf "$out"
mkdir -p "$out"
examples/playground/build.sh "$page" || exit 1
expect "it is below 1 MB" [ "$(wc -c <"$page")" -lt 1000000 ]
expect "it names no address but that of SVG" [ "$(grep -oE "https?://[^\"' )]*" "$page" | sort -u)" = http://www.w3.org/2000/svg ]
grep -qE '<(link|img|iframe)|src=|@import|fetch\(|XMLHttp' "$page" && bad "it loads something"

# What the reader's browser is made to do, behind the page's own script. It leaves its findings in <pre id=findings>.
cat >"$out/judge.html" <<'HTML'
<pre id="findings"></pre>
<script>
(async () => {
    const lines = [], say = (what, good) => lines.push((good ? "ok " : "BAD ") + what)
    const settle = async () => { for (let i = 0; i < 3; i++) await new Promise((f) => setTimeout(f, 20)) }
    const another = (c) => { /* far from where it is, and a value in its range */
        const low = Number(c.min), high = Number(c.max), at = Number(c.value)
        return /_rate$/.test(c.dataset.setting) ? at + 4 : at - low > high - at ? Math.ceil((low + at) / 2) : Math.floor((at + high) / 2)
    }
    const drawn = () => [...document.querySelectorAll("svg")].map((s) => s.innerHTML).join("\n")
    for (let i = 0; i < 200 && !now; i++) await settle()
    const wanted = new URLSearchParams(location.search).get("judge")
    if (wanted === "numbers") {
        const first = location.hash
        for (const link of [first, ...new URLSearchParams(location.search).getAll("then").map((then) => "#header=" + then)]) {
            if (link !== first) location.hash = link
            await settle()
            lines.push(link)
            now.forEach((r, i) => {
                r.tenths.forEach((t, k) => lines.push([i, k, ...t].join(" ")))
                lines.push([i, "all", ...r.totals].join(" "))
            })
        }
    } else {
        say("it starts", now && drawn().length > 5000)
        const wide = document.documentElement
        say("nothing is wider than the page (" + (wide.scrollWidth - wide.clientWidth) + ")", wide.scrollWidth <= wide.clientWidth)
        for (const question of names) {
            location.hash = "#header=" + question
            await settle()
            const plain = drawn(), prefix = question === "htb" ? "#" : `#header=${question}&`
            say(`${question}: its button is pressed and its lines are drawn`, document.querySelector(`[data-case=${question}]`).getAttribute("aria-pressed") === "true" && plain.length > 5000)
            say(`${question}: nothing is wider than the page`, wide.scrollWidth <= wide.clientWidth)
            say(`${question}: each control has a name and is reached by keys`, [...document.querySelectorAll("input, select, button")].every((c) => c.tabIndex >= 0 && (c.labels ? c.labels.length || c.textContent : 0)))
            const controls = [...document.querySelectorAll("input[data-setting], select[data-setting]")]
            const switches = settings.length - 2 - document.querySelectorAll("[data-toggle]").length
            say(`${question}: each setting but seed and qos has a control: ${controls.length}`, controls.length === switches)
            for (const c of wanted === "controls" ? controls : []) {
                const values = c.tagName === "SELECT" ? [...c.options].map((o) => o.value).filter((v) => v !== c.value) : [another(c)]
                for (const v of values) {
                    const before = c.value
                    c.value = v
                    c.dispatchEvent(new Event("input", {bubbles: true}))
                    await settle()
                    say(`${c.dataset.setting}=${v} changes a line`, drawn() !== plain)
                    say(`${c.dataset.setting}=${v} is in the link`, location.hash === `${prefix}${c.dataset.setting}=${v}`)
                    c.value = before
                    c.dispatchEvent(new Event("input", {bubbles: true}))
                    await settle()
                    say(`${c.dataset.setting} back: the lines are as before`, drawn() === plain)
                }
            }
            for (const b of wanted === "controls" ? document.querySelectorAll("[data-toggle], [data-qos='0']") : []) {
                b.click()
                await settle()
                say(`${question}: the button ${b.textContent} changes a line and is pressed`, drawn() !== plain && b.getAttribute("aria-pressed") === "true")
                $("reset").click()
                await settle()
                say("reset after it", drawn() === plain)
            }
            location.hash = prefix + "qos=0"
            await settle()
            say(`${question}: without it promises are missed, and shown so`, now.some((r) => r.missed > 0) && document.querySelectorAll("rect.red").length > 0 && $("verdict").classList.contains("missed"))
            say(`${question}: with it none is`, other.every((r) => r.missed === 0 && r.refused === 0))
        }
        location.hash = "#qos=0&backup_does=2"
        await settle()
        const missed = now.filter((r) => r.missed > 0).length, red = document.querySelectorAll("rect.red").length
        say(`missed promises are red: ${missed} tenants, ${red} tenths`, missed > 0 && red >= 10 && $("verdict").classList.contains("missed"))
        say("red is counted from the numbers", red === now.reduce((s, r) => s + r.tenths.reduce((n, t) => n + (t[4] & 5 ? 1 : 0) + (t[4] & 2 ? 1 : 0), 0), 0))
        location.hash = "#database_rate=90"
        await settle()
        say("a reservation that does not fit is refused, in red", now[0].refused < 0 && $("database_says").classList.contains("missed") && /Refused/.test($("database_says").textContent))
    }
    $("findings").textContent = lines.join("\n") + "\nend\n"
})()
</script>
HTML
cat "$page" "$out/judge.html" >"$out/judged.html"
# NAME WIDTH QUERY: leaves its findings in $out/NAME
browser() {
    timeout 1000 chromium --headless --no-sandbox --disable-gpu --user-data-dir="$out/profile.$1" --window-size="$2",1200 --virtual-time-budget=300000 \
        --dump-dom "file://$out/judged.html$3" 2>"$out/$1.err" | sed -n '/<pre id="findings">/,/^end$/p' | sed 's/.*<pre id="findings">//; /^end$/d; s/&amp;/\&/g' >"$out/$1"
}
# The page is opened by the first link; the others follow in the same page, from another header or other settings.
links=("tokenpool&restart=1&monitor=1&scanner_limit=10&seed=9" "htb" "htb&database_rate=70&flood=1&stall=1&restart=1" "htb&qos=0&seed=8" "htb&device=1&backup_does=1&single=1" "htb&device=3&backup_does=5&backup_limit=20&web_demand=60" "tags" "tags&reward=1&gold_time=50&stall=1&device=3" "pshift" "pshift&shop_reservation=20000&shop_demand=20000&restart=1" "twochoice" "twochoice&hang=1&lost=1&moves=1" "tokenpool")
query="?judge=numbers"
for with in "${links[@]:1}"; do query+="&then=$(sed 's/&/%26/g; s/=/%3D/g' <<<"$with")"; done
# A browser waits more than it computes: side by side.
browser numbers 1200 "$query#header=${links[0]}" &
browser controls 1200 "?judge=controls" &
browser layout 400 "?judge=layout" &
wait
for with in "${links[@]}"; do
    # shellcheck disable=SC2086
    $native ${with//&/ } >"$out/native" || bad "the native run fails: $with"
    awk -v link="#header=$with" '/^#/ {on = $0 == link; next} on' "$out/numbers" >"$out/page"
    expect "the browser's $(wc -l <"$out/native") lines of numbers are the native ones: $with" diff -q "$out/native" "$out/page"
done
for run in 1200:controls:280 400:layout:20; do # width, what is judged, its findings
    IFS=: read -r width what least <<<"$run"
    grep BAD "$out/$what" && failed=1
    expect "$width pixels: $(grep -c '^ok' "$out/$what") findings, none bad" [ "$(grep -c '^ok' "$out/$what")" -ge "$least" ]
    grep -iE 'CONSOLE.*(error|uncaught)' "$out/$what.err" && bad "the browser reports an error"
done
# Pictures to look at.
for kind in 1200,1330:1 1200,1330:0; do
    timeout 300 chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$out/profile" --blink-settings=preferredColorScheme=${kind#*:} --virtual-time-budget=5000 \
        --window-size=${kind%:*} --screenshot="$out/${kind%,*}_$([ ${kind#*:} = 0 ] && echo dark || echo light).png" "file://$page" >/dev/null 2>&1
done
expect "dark is dark: another picture than light" [ -s "$out/1200_dark.png" -a "$(cksum <"$out/1200_dark.png")" != "$(cksum <"$out/1200_light.png")" ]
rm -rf "$out"/profile*
finish $failed
