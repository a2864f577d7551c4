#!/usr/bin/env bash
# Draws the README's picture of the playground by the page itself, in headless Chromium: what three tenants get, without
# and with QoS.
# usage: examples/playground/picture.sh PAGE.html OUT.svg
set -eu
page=$(realpath "$1") out=$2
d=$(mktemp -d)
trap 'rm -rf "$d"' EXIT
cat "$page" - >"$d/page.html" <<'HTML'
<pre id="picture"></pre>
<script>
(async () => {
    const settle = () => new Promise((f) => setTimeout(f, 50))
    while (!now) await settle()
    const style = getComputedStyle(document.documentElement), colour = (name) => style.getPropertyValue("--" + name).trim()
    let body = ""
    for (const [i, qos, title] of [[0, 0, "Without QoS"], [1, 1, "With htb.h: database reserves 50 MB/s, web 15"]]) {
        value.qos = qos
        update()
        $("all").style.width = "470px"
        drawAll()
        const x = 500 * i + 10
        body += `<text x="${x}" y="22" class="title">${title}</text><svg x="${x}" y="34" width="470" height="190" viewBox="${$("all").getAttribute("viewBox")}">${$("all").innerHTML}</svg>`
        const says = tenants.map((t, k) => `<tspan fill="${colour(places[k])}">${t.id} ${(now[k].tenths.slice(10).reduce((s, v) => s + v[0], 0) / 5 / scene.work).toFixed(0)}</tspan>`).join(" \u00b7 ")
        body += `<text x="${x + 34}" y="246" class="says">MB/s beside the backup: ${says}</text>`
    }
    const css = `svg{font-family:system-ui,"DejaVu Sans",sans-serif} text{font-size:11px;fill:${colour("soft")}} .title{font-size:15px;font-weight:600;fill:${colour("ink")}} .says{font-size:13px;font-weight:600} ` +
        `.grid{stroke:${colour("grid")}} .event{stroke:${colour("soft")};stroke-dasharray:2 3} .area{opacity:.8} ` + places.map((p) => `.${p}{fill:${colour(p)}}`).join(" ")
    $("picture").textContent = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 980 260" role="img"><title>What a database, a web server and a backup get from one disk, without and with QoS</title>` +
        `<style>${css}</style><rect width="980" height="260" rx="8" fill="#fff"/>${body.replaceAll("style=\"fill:var(--ink)\"", "")}</svg>`
})()
</script>
HTML
timeout 60 chromium --headless --no-sandbox --disable-gpu --user-data-dir="$d/profile" --blink-settings=preferredColorScheme=1 --window-size=1200,1200 --virtual-time-budget=9000 --dump-dom "file://$d/page.html" 2>/dev/null |
    tr -d '\n' | sed 's/.*<pre id="picture">//; s,</pre>.*,,; s/&lt;/</g; s/&gt;/>/g; s/&amp;/\&/g; s/></>\n</g' >"$d/out.svg"
grep -q '</svg>' "$d/out.svg" || { echo "picture.sh: the page drew nothing" >&2; exit 1; }
echo >>"$d/out.svg"
mv "$d/out.svg" "$out"
