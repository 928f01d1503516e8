use proptest::prelude::*;

use super::*;

fn page(html: &str) -> Page {
    to_markdown(html, &Url::parse("https://example.org/docs/page.html").unwrap())
}

fn markdown(html: &str) -> String {
    page(html).markdown
}

const WORDS: &str = "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut \
    labore et dolore magna aliqua. Ut enim ad minim veniam, quis nostrud exercitation ullamco laboris nisi ut aliquip.";

#[test]
fn main_content_without_menus_and_scripts() {
    let html = format!(
        "<html><head><title>On Foxes | Example</title><style>p {{}}</style><script>var x = '<p>no</p>';</script></head>
        <body><nav><a href=/>Home</a> <a href=/all>All pages</a></nav>
        <article><h1>On Foxes</h1><p>{WORDS}</p><p>{WORDS} <a href='../more?a=1&amp;b=2'>More</a></p><p>{WORDS}</p></article>
        <aside class=sidebar>Subscribe now</aside><footer>Imprint</footer><script>track()</script></body></html>"
    );
    let page = page(&html);
    assert_eq!(page.title.as_deref(), Some("On Foxes | Example"));
    assert!(page.markdown.contains("[More](https://example.org/more?a=1&b=2)"), "{}", page.markdown);
    for gone in ["All pages", "Subscribe", "Imprint", "track", "<p>", "var x"] {
        assert!(!page.markdown.contains(gone), "{gone} in {}", page.markdown);
    }
    assert!(page.markdown.starts_with('#'), "{}", page.markdown);
}

#[test]
fn links_are_absolute_and_go_somewhere() {
    let text = markdown(
        "<p><a href='/a'>root</a> <a href='b c?a=1&amp;b=(2)'>beside</a> <a href='?q'>query</a> <a href='//cdn.example/x'>host</a>
        <a href='#top'>top</a> <a href='javascript:alert(1)'>script</a> <a href='data:text/html,x'>data</a>
        <a href='mailto:ann@example.org'>mail</a> <a name=x>anchor</a> <img src=i.png alt='A fox'> <img src=j.png></p>",
    );
    for kept in [
        "[root](https://example.org/a)",
        "[beside](https://example.org/docs/b%20c?a=1&b=(2))",
        "[query](https://example.org/docs/page.html?q)",
        "[host](https://cdn.example/x)",
        "[mail](mailto:ann@example.org)",
        "![A fox](https://example.org/docs/i.png)",
        "top",
        "script",
        "anchor",
    ] {
        assert!(text.contains(kept), "{kept} not in {text}");
    }
    for gone in ["javascript", "data:", "j.png", "#top"] {
        assert!(!text.contains(gone), "{gone} in {text}");
    }
}

#[test]
fn the_first_base_counts() {
    let text = markdown(
        "<base href='https://other.example/x/'><base href='https://evil.example/'><a href=y>link</a>",
    );
    assert_eq!(text, "[link](https://other.example/x/y)");
}

#[test]
fn tables_keep_their_cells() {
    let text = markdown(
        "<table><caption>Prices</caption><tr><th>Name<th>Price<tr><td>Tea<td>2|3<tr><td rowspan=2>Milk<td>1
        <tr><td>9<tr><td colspan=2>Sum</table>",
    );
    assert_eq!(
        text,
        "Prices\n\n| Name | Price |\n| ---- | ----- |\n| Tea | 2\\|3 |\n| Milk | 1 |\n|  | 9 |\n| Sum |  |"
    );
}

#[test]
fn tables_without_a_head_are_tables() {
    let text = markdown("<table><tbody><tr><td>a</td><td><p>b</p><p>c</p></td></tr></tbody></table>");
    assert!(text.contains("| a | b<br>c |"), "{text}");
}

#[test]
fn code_keeps_its_lines_and_language() {
    let rust = "```rust\nfn main() {\n    if a < b && c {}\n}\n```";
    let body = "fn main() {\n    if a &lt; b &amp;&amp; c {}\n}";
    for html in [
        format!("<pre><code class='language-rust'>{body}</code></pre>"),
        format!("<pre class='language-rust'>\n{body}\n</pre>"),
        format!("<div class='highlight highlight-source-rust'><pre><span class=k>{body}</span></pre></div>"),
        format!("<pre class=lang-rust><code><b>{}</b></code></pre>", body.replace('\n', "<br>")),
        format!(
            "<pre><code class=language-rust>{}</code></pre>",
            body.split('\n').map(|line| format!("<div class=line>{line}</div>")).collect::<String>()
        ),
    ] {
        assert_eq!(markdown(&html), rust, "{html}");
    }
    assert_eq!(markdown("<p>Run <code>a`b</code> or <kbd>Ctrl</kbd></p>"), "Run ``a`b`` or `Ctrl`");
    let after = markdown("<pre class=language-c>x</pre><p>after</p>");
    assert_eq!(after, "```c\nx\n```\n\nafter");
    assert!(markdown("<pre>a\n\n\n\nb</pre>").contains("a\n\n\n\nb"));
}

#[test]
fn lists_quotations_and_definitions() {
    assert_eq!(markdown("<ul><li>a<ul><li>b</ul><li>c</ul>"), "- a\n    - b\n- c");
    assert_eq!(markdown("<ol start=3><li>x<li>y</ol>"), "3. x\n4. y");
    assert_eq!(markdown("<blockquote><p>said</blockquote>"), "> said");
    assert_eq!(markdown("<dl><dt>Term<dd>Meaning<dt>Next<dd>One</dl>"), "Term\n\nMeaning\n\nNext\n\nOne");
    assert_eq!(markdown("<header>Site</header><main>Text</main>"), "Site\n\nText");
    assert_eq!(markdown("<p>one<p>two<p>three"), "one\n\ntwo\n\nthree");
}

#[test]
fn what_a_page_hides_stays_hidden() {
    let text = markdown(
        "<p>seen</p><p hidden>one<p>also seen</p><div style='Display : NONE'><div>two</div></div>
        <span style='visibility:hidden'>three</span><template>four</template><dialog>five</dialog>
        <!-- six --><noscript>also <b>seen</b></noscript><svg><title>seven</title><text>eight</text></svg>",
    );
    for gone in ["one", "two", "three", "four", "five", "six", "seven", "eight"] {
        assert!(!text.contains(gone), "{gone} in {text}");
    }
    assert_eq!(text.matches("seen").count(), 3, "{text}");
}

#[test]
fn short_pages_are_whole() {
    let page = page("<title> A\n title </title><div><p>Only this &amp; that.</p></div>");
    assert_eq!(
        page,
        Page { title: Some("A title".into()), markdown: "# A title\n\nOnly this & that.".into() }
    );
    assert_eq!(markdown(""), "");
    assert_eq!(markdown("just text"), "just text");
}

#[test]
fn a_page_that_is_a_list_of_links_is_whole() {
    let links: String =
        (0..100).map(|n| format!("<tr><td>{n}.<td><a href=/{n}>Title number {n}</a></tr>")).collect();
    let text = markdown(&format!("<title>News</title><table>{links}</table>"));
    for n in [0, 50, 99] {
        assert!(text.contains(&format!("[Title number {n}](https://example.org/{n})")), "{n}");
    }
}

#[test]
fn text_of_an_error_page() {
    let text = to_text(
        "<h1>Not\nFound</h1><p>No such <b>page</b>.</p><script>x</script>",
        &Url::parse("http://x/").unwrap(),
    );
    assert_eq!(text, "Not Found No such page.");
}

/// Pages that would cost a parser the square of their size, or its stack.
#[test]
fn hostile_pages_end_soon() {
    let size = 20 << 10;
    let fill = |piece: &str| piece.repeat(size / piece.len());
    let counted = |make: fn(usize) -> String| (0..size / 20).map(make).collect::<String>();
    for (name, html) in [
        ("nested div", fill("<div>")),
        ("nested b", fill("<b>")),
        ("nested a", fill("<a href=x>")),
        ("nested li", fill("<ul><li>")),
        ("nested quotes", fill("<blockquote>x<br>")),
        ("nested tables", fill("<table><tr><td>")),
        ("lines in lists", "<ul><li>".repeat(200) + &fill("x<br>")),
        ("unclosed p", fill("<p>x")),
        ("misnested", fill("<b><p></b><i></p></i>")),
        ("different b", counted(|n| format!("<p><b id={n}>"))),
        ("attributes", format!("<p {}>", counted(|n| format!("a{n} ")))),
        ("ends", fill("</div>")),
        ("lone <", fill("<")),
        ("comments", fill("<!--")),
        ("quotes", fill("<a b='")),
        ("entities", fill("&lt;")),
        ("spans", fill("<table><tr><td rowspan=99999 colspan=99999>") + &fill("<tr>")),
        ("flat div", fill("<div></div>")),
        ("flat p", fill("<p>word ")),
        ("links", fill("<a href=x>y</a> ")),
        ("scripts", fill("<script>")),
        ("svg", fill("<svg><g>")),
        ("backticks", format!("<pre>{}</pre>", fill("`"))),
        ("long line", fill("a")),
    ] {
        let done = page(&html);
        assert!(done.markdown.len() < 20 * size, "{name}: {}", done.markdown.len());
    }
}

#[test]
fn five_megabytes_of_open_tags_end_soon() {
    assert_eq!(markdown(&"<div>".repeat(1 << 20)), "");
}

#[test]
fn past_many_tags_a_page_is_text() {
    let html = "<b>a</b>".repeat(160_000) + "<p>the end";
    let tidied = tidy(&html, &Url::parse("https://example.org/").unwrap());
    assert_eq!(tidied.elements, 150_000);
    assert!(tidied.html.ends_with("a a the end"), "{}", &tidied.html[tidied.html.len() - 40..]);
}

#[test]
fn deep_pages_keep_their_text() {
    let html =
        format!("{}<p>at the bottom</p>{}<p>after</p>", "<div>".repeat(100_000), "</div>".repeat(100_000));
    let text = markdown(&html);
    assert!(text.contains("at the bottom") && text.contains("after"), "{text}");
}

fn scrap() -> impl Strategy<Value = String> {
    const PIECES: &[&str] = &[
        "<",
        ">",
        "</",
        "/>",
        "<!--",
        "-->",
        "<!",
        "<?",
        "=",
        "'",
        "\"",
        " ",
        "\n",
        "&",
        "&lt;",
        "&#x",
        "é",
        "😀",
        "\0",
        "<p>",
        "</p>",
        "<div hidden>",
        "</div>",
        "<table>",
        "</table>",
        "<tr>",
        "<td rowspan=3>",
        "<td colspan=4>",
        "</td>",
        "<a href='",
        "<a href=#x>",
        "<a href=/y>",
        "</a>",
        "<pre>",
        "<pre class=language-c>",
        "</pre>",
        "<code>",
        "</code>",
        "<ul>",
        "<li>",
        "</ul>",
        "<blockquote>",
        "<title>",
        "</title>",
        "<script>",
        "</script>",
        "<svg>",
        "</svg>",
        "<br>",
        "<img src=x alt=y>",
        "<h1>",
        "</h1>",
        "<nav>",
        "</nav>",
        "<base href=//z>",
        "<dt>",
        "<dd>",
        "text, more text. ",
    ];
    prop::collection::vec(prop::sample::select(PIECES), 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_page_is_too_odd(html in prop_oneof![scrap(), any::<String>()]) {
        let tidied = tidy(&html, &Url::parse("https://example.org/").unwrap());
        let opened = tidied.html.matches("<").count() - tidied.html.matches("</").count();
        let void = ["<br>", "<hr>", "<img "].iter().map(|tag| tidied.html.matches(tag).count()).sum::<usize>();
        prop_assert_eq!(tidied.html.matches("</").count(), opened - void, "{}", tidied.html);
        page(&html);
    }
}
